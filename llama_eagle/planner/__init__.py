"""Which draft tree to draft next: costs of a step, what drafts gain, and the choice that follows."""
