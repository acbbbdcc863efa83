"""The fault matrix: real faults on real runs, what each cost, and the proof that the run ends as if it had not happened.

    make faults                          # every cell and a soak of 60 faults; writes the tables of docs/FAULTS.md
    make faults ARGS="--only driver-killed rank-1-killed"
    make faults SOAK=1000                # a soak of 1,000 faults

A cell (`cell`; all of them: `matrix`) says what happens when to which run. `proof` lets it happen, asserts what every cell
asserts and measures what the table shows. `test_matrix` has some of the cells as tests.
"""
