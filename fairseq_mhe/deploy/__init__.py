"""Use a trained model: translate plain text, write bundles, draw attention maps."""
