"""SQL of tables with watermarks: the statements of the seed, and windows over them."""
