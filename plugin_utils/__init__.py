"""What the plugins on the controller share."""
