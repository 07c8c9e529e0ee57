"""Reports as pages: one self-contained file, and a small server that only shows. A leaf: nothing else knows it."""
