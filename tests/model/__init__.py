"""Clients with their own clocks on one store, and a checker that states the rules independently."""
