"""A call of a jitted function: its signature, who answers it, the call recorded in another program, why it missed."""
