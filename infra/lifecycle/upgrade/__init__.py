"""`make upgrade`: from the release that a stack runs to that of this checkout, in steps that can be repeated."""
