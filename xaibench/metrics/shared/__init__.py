"""What metrics share: checks on the way in, the asked model, replaced pixels."""
