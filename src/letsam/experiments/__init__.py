"""The main job: train several methods on one task, record everything, say which won."""
