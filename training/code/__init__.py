"""A user's code folder: which files it has, its archive, and its synchronization with a copy elsewhere.

`rules` and `three_way` are policy on plain values; `selection` and `folder` read and write a folder; `archive` packs it, `kept` keeps
the archive in a run's folder, `given` and `import_path` make it importable; `agent` serves a folder over a pipe to `remote`;
`synchronizer` makes two folders equal. Only the standard library: the agent runs in the pods of a session.
"""
