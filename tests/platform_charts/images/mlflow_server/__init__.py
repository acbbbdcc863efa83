"""The program of the MLflow image, against real PostgreSQL, S3 and Secrets Manager APIs."""
