"""The second tier of checkpoints: a bucket behind the run's folder.

The run's folder is always written first and stays as it is. A thread of rank 0 copies committed checkpoints to the bucket (`uploader`), a
restore takes the newest good one of both (`newest`), and a lease in the bucket keeps a second writer away (`lease`). Without
`checkpoint.remote` nothing here is imported but `location`. Nothing here imports torch; `bucket` imports boto3 when it connects.
"""
