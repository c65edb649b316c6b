"""What makes a limit real on a card."""
