"""The demonstration: from invented jobs to simulated services, on this machine only."""
