"""Covariates of the forecaster on series that have some, beside the same forecaster without and gradient boosting."""
