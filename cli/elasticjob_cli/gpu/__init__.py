"""`elasticjob doctor --gpu`: tries on one machine what jobs with GPUs rely on."""
