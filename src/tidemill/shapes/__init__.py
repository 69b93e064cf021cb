"""Shapes of data, without a catalog: keys, filters, manifests, formats, partition times."""
