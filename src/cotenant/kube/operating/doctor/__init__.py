"""What is wrong in a cluster: checks are functions of facts, and repairs touch only what is safe."""
