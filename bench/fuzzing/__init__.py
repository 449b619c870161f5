"""What ``bench/fuzz.py`` is made of: seeds, mutators, targets, the judgement of a case, and the workers that run cases."""
