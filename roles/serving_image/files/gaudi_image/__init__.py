"""Build a serving image on a node, from a recipe that the controller wrote."""
