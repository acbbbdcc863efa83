"""What a rank builds from the settings: its place and device, the components, the callbacks, and the loop over them."""
