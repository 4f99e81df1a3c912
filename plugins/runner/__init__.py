"""The work of one worker: build samples, run the model, score and journal the answers."""
