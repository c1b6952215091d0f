% Run the authors' program on one job, and write what it found.
%
%   octave-cli drive.m AUTHORS JOB.mat FOUND.mat
%
% AUTHORS is a checkout of their repository. JOB.mat is written by authors.py.

words = argv();
[authors, job, found] = words{end-2:end};
addpath(fullfile(authors, 'software', '3rdparty', 'yoon15iccv'));
addpath(fullfile(authors, 'software', 'dplant'));
addpath(fileparts(mfilename('fullpath')), '-end');  % what Octave lacks
j = load(job);

nodes = max(j.V);
start.W = cell(nodes, 1);
for i = 1:nodes
    start.W{i} = squeeze(j.W(i, :, :));
    start.MU{i} = j.mu(i, :)';
    start.VAR{i} = 1 / j.a(i);
end
options = {'InitModel', start, 'Eta', j.eta0, 'Threshold', j.threshold, ...
           'ConvCounterRMS', j.rises, 'MaxIter', j.iterations, ...
           'W_GT', j.target, 'ShowObjPer', 0};
if strcmp(j.scheme, 'fixed')
    model = dppca(j.X, j.M, j.V(:), j.E, options{:});
else
    model = dppca_ant(j.X, j.M, j.V(:), j.E, options{:}, 'ModelType', j.scheme);
end

iterations = model.eITER;
seconds = model.eTIME;
angles = model.ssaArray;
W = cat(3, model.W{:});
mu = cat(2, model.MU{:});
a = 1 ./ cat(1, model.VAR{:});
octave = version();
save('-v7', found, 'iterations', 'seconds', 'angles', 'W', 'mu', 'a', 'octave');
