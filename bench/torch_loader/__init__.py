"""feedline.torch.DataLoader beside torch's DataLoader and SPDL, on unchanged datasets."""
