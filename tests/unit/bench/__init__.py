"""The benchmark's arithmetic is right. Nothing here measures anything."""
