"""How `tiny` was made: its problems, tokenizer, training and calibration."""
