"""Agents: processes that outlive the attempts of a run, and keep its ranks for the next one.

    driver        Coordinator          starts attempts, learns at once of a rank that ended
      | TCP, authenticated
    Ray worker    Agent                one for each rank; has the CPUs and the GPU
      | pipe
    fork server                        has imported torch and the trainer, and nothing else
      | fork
    rank          serve_attempts       runs one attempt after the other

A rank that dies is forked again in milliseconds, with everything imported. Those that only lost their peers keep their process and their
weights (`training.checkpoint.memory`). A Ray worker that dies takes its agent along; then the launcher starts a new group.
"""
