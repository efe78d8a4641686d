"""One training: recipe, devices, processes, training, generation, scoring, and the folder that holds them."""
