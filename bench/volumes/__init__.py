"""3D volumes: MLPerf's 3D U-Net preparation, against torch and MONAI."""
