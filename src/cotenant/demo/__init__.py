"""The story of sharing, told by real processes on simulated cards, and judged by the cards' own account."""
