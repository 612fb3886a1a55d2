"""The simulation of the product: one process, one virtual clock, one seed; see `make sim`."""
