"""A watch that remembers, for tests of launchers."""


class Log:
    """What a launcher told."""

    def __init__(self):
        self.ended, self.failures, self.reasons, self.said, self.steps = [], [], [], [], []

    def progress(self, job, step, steps):
        self.steps.append((job.name, step, steps))

    def done(self, job):
        self.ended.append(job.name)

    def failed(self, job, reason, again):
        self.failures.append((job.name, again))
        self.reasons.append(reason)

    def say(self, text):
        self.said.append(text)
