"""Where the GPU nodes for a piece of work can come from, and a calendar of those that are reserved.

`sources/` reads AWS, one file per kind of capacity. What the answers mean for a need (`judging.py`), which way is better
(`ranking.py`) and which settings would take it (`change.py`) are pure functions of plain data.
"""
