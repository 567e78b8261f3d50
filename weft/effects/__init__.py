"""Effects: callbacks, and the checks debug_nans and debug_infs."""
