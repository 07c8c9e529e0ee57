"""Records of AUDITOR (ALU Freiburg), version 0.11 of its REST interface."""
