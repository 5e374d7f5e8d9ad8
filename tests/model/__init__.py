"""Clients with clocks of their own on one store, and a checker that knows the rules by itself."""
