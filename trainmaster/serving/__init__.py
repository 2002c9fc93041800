"""What runs in a task that people use through the server: a program that listens, and the door that leads to it."""
