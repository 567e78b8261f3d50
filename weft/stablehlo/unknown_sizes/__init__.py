"""Programs for sizes without a value: how they are traced, computed with, checked and written."""
