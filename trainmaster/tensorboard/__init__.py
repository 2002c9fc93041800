"""Files for TensorBoard, under the names that older scripts import."""
