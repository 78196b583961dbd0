"""The evaluator: frozen measurements in, exact frontiers, overthinking figures and scores out; arrays only."""
