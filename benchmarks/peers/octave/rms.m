function value = rms(x)
% Root mean square of each column, for versions of Octave without it.
if isrow(x)
    x = x(:);
end
value = sqrt(mean(abs(x) .^ 2));
end
