"""What runs on the cluster: charts, our own objects, and the job templates."""
