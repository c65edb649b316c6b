"""How demands are read and grants are spelled: our own way, and the ways of other systems."""
