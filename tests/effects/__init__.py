"""Effects: callbacks, prints, breakpoints, checks of numbers, checkify."""
