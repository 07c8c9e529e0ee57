"""The parts of `publisher.pipeline.reconcile`: what was sent, what a service tells, and the three ways to compare."""
