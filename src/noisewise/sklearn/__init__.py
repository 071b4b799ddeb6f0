"""Estimators in the manner of scikit-learn, for somebody who owns the data and wants the model.

They join both wings: `fit` publishes a Release and forgets the rows, and everything else is learnt
from that Release. Needs the extra ``sklearn``.
"""

from noisewise.sklearn.naive_bayes import PrivateNaiveBayes
from noisewise.sklearn.regression import PrivateBayesianClassifier, PrivateBayesianRegressor

__all__ = ["PrivateBayesianClassifier", "PrivateBayesianRegressor", "PrivateNaiveBayes"]
