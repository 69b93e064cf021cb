"""The main job on real data: New York flights of 2013, loaded, joined and reported as they arrive."""
