"""Programs as data: jaxprs, their text, the rules that they obey, how they are evaluated and rewritten."""
