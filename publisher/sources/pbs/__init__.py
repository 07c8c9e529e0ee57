"""TORQUE and PBS Professional: their server logs."""
