"""`kvc sweep`: one model and text on many caches side by side, and how far each is from an fp32 one."""
