"""The demonstration: the main job from nothing, on this machine only, with invented jobs."""
