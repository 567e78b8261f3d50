"""What an equation does besides giving results: callbacks, checks of numbers."""
